"""Background deletes: the library deletes the nodes of discarded tickets, however long that takes.

The life of a delete:

* It is sent at once if possible, otherwise by the keeper, or by the next call at its path.
* Its reply shows that the node is gone. If the first attempt finds no node, another client has deleted it already.
* If the connection is lost, the ticket stays in `Registry.deletes`, and the releasing call returns. In the same session
  the keeper sends the delete again after the reconnect. If the session has ended, the server has removed the node.
* If no reply comes for a session timeout, the keeper sends the delete again.

If the reply to a create was lost, the name of the node is unknown: a listing behind a `sync` shows it.
"""

from __future__ import annotations

from .._errors import RefusedError
from .._kazoo.failures import failure, kazoo_errors
from .._kazoo.reply import HandledReply, Reply
from .._protocol.operations import Busy, ConnectionLost, NoNode
from .._protocol.ticket import State, Ticket
from .client_state import ClientState

SLOW_DELETE = 5.0  # seconds


class Deletes:
    """The deletes of one session. All methods are called with its lock held.

    Attributes:
        last_tried: when each delete was last tried on this connection, by prefix.
    """

    def __init__(self, client: ClientState) -> None:
        self._client = client
        self.last_tried: dict[str, float] = {}
        # When the keeper first tried each delete, by prefix.
        self._first_try: dict[str, float] = {}

    def forget_sends(self) -> None:
        """Forget which deletes were sent, as the connection is a new one.

        This makes a new dictionary and leaves the old one alone. The connection may change in a signal handler that has
        interrupted a thread after it sent a delete and before it recorded that; the record must not count for the new
        connection.
        """
        self.last_tried = {}

    def send(self, ticket: Ticket) -> bool:
        """Send a delete, or leave it to the keeper; return whether this call has sent it."""
        if ticket.name is None or not self._client.link.connected or ticket.prefix in self.last_tried:
            self._client.wake_keeper()
            return False
        self._delete(ticket)
        return True

    def send_all(self, path: str) -> bool:
        """Send the deletes of the nodes abandoned at or below a path, unless that was done on this connection.

        A lost hold's node is left to the keeper, which first reports the loss.

        Returns:
            Whether the name of such a node is not known yet.
        """
        unknown = False
        for prefix, ticket in list(self._client.registry.deletes.items()):
            if ticket.state is State.DISCARDED and (ticket.path == path or ticket.path.startswith(f"{path}/")):
                # The reply to the create gave the name while a listing looked for it; the delete was not sent yet.
                learned = ticket.name is not None and not ticket.deletes
                if prefix not in self.last_tried or learned:
                    self._delete_or_find(ticket)
                unknown |= ticket.name is None
        return unknown

    def repeat(self, now: float) -> None:
        """Send every delete that is due, and repeat each whose reply is overdue. For the keeper."""
        client = self._client
        self._first_try = {prefix: at for prefix, at in self._first_try.items() if prefix in client.registry.deletes}
        for prefix, ticket in list(client.registry.deletes.items()):
            if now - self.last_tried.get(prefix, float("-inf")) < client.timeout:
                continue
            first = self._first_try.setdefault(prefix, now)
            if now - first > SLOW_DELETE:
                text = "%s could not be deleted in %.0f s; still trying"
                client.warn_later(text, ticket.node, now - first, zk_path=ticket.path)
            self._delete_or_find(ticket)

    def _delete_or_find(self, ticket: Ticket) -> None:
        if ticket.name is None:
            self._find(ticket)
        else:
            self._delete(ticket)

    def _delete(self, ticket: Ticket) -> None:
        """Delete a node whose name is known."""
        client, last_tried, before = self._client, self.last_tried, ticket.deletes
        if ticket.state is State.HELD:
            # Interrupts have struck after this delete was noted, and before the hold was ended. The hold ends first:
            # otherwise this process would believe that it holds while others get in.
            client.registry.discard(ticket)
        sent = client.clock()

        def on_reply(reply: HandledReply) -> None:
            if reply.error is None or isinstance(reply.error, kazoo_errors.NoNodeError):
                # The delete was sent only once, so it was another client that deleted the node.
                if reply.error is not None and ticket.deletes == 1:
                    ticket.refusal = NoNode()
                self._deleted(ticket)
            else:
                self._try_again(ticket, reply.error, before)

        ticket.deletes = before + 1
        reply = HandledReply(on_reply, client.post)
        client.link.send(client.link.delete(ticket.node, reply))
        # The send is recorded afterwards: if an interrupt prevents the send, the delete must not seem to be sent.
        # A send that failed at once is recorded too: otherwise the keeper would repeat it without a pause, until it
        # knows that the connection or session is over.
        if ticket.prefix in client.registry.deletes:
            last_tried[ticket.prefix] = sent

    def _find(self, ticket: Ticket) -> None:
        """Delete a node that may exist. Its create was sent already, so a listing behind a sync shows it."""
        client, last_tried = self._client, self.last_tried
        synced = Reply()

        def on_reply(reply: HandledReply) -> None:
            # A busy server may refuse the `sync` alone; then the listing proves nothing.
            error = synced.error or reply.error
            if error is not None and not isinstance(error, kazoo_errors.NoNodeError):
                self._try_again(ticket, error, ticket.deletes)
                return
            if ticket.deletes:
                # The reply to the create has given the name, and the delete was sent.
                return
            ticket.name = next((name for name in reply.value or () if name.startswith(ticket.prefix)), None)
            if ticket.name is None:
                self._deleted(ticket)
            else:
                self._delete(ticket)

        listed = HandledReply(on_reply, client.post)
        client.link.send(client.link.sync(ticket.path, synced), client.link.children(ticket.path, listed))
        if ticket.prefix in client.registry.deletes and ticket.name is None:
            last_tried[ticket.prefix] = client.clock()

    def _deleted(self, ticket: Ticket) -> None:
        self.last_tried.pop(ticket.prefix, None)
        self._client.registry.mark_deleted(ticket)
        ticket.on_change()

    def _try_again(self, ticket: Ticket, error: Exception, before: int) -> None:
        """Leave a failed delete to the keeper, which repeats a refused delete only after a session timeout.

        Args:
            ticket: the ticket.
            error: why the delete has failed.
            before: how many deletes of the node were sent earlier.
        """
        failed = failure(error, ticket.path)
        if isinstance(failed, ConnectionLost):
            self.last_tried.pop(ticket.prefix, None)
            if isinstance(failed, Busy):
                # A busy server has deleted nothing, so this attempt does not count: if the next one finds no node,
                # another client has deleted the node.
                ticket.deletes = before
        elif isinstance(failed, RefusedError) and ticket.refusal is None:
            if isinstance(error, kazoo_errors.NoAuthError):
                failed = RefusedError(
                    ticket.path,
                    f"this client may not delete its own node {ticket.node}, which blocks other clients: grant the "
                    f"client DELETE (d) on {ticket.path}; it keeps trying",
                )
            ticket.refusal = failed
            self._client.warn_later("not deleted: %s", failed, zk_path=ticket.path)
        self._client.wake_keeper()
        # The releasing thread looks again, and does not wait until a connection is back.
        ticket.on_change()
