"""The recipes of a Queue: they put, take, claim and manage items.

Every `multi` begins with a check of a *member*, an ephemeral node of the session in which the change was decided. The
member also has the number of items that were taken and are not done. This number must disappear with the process, and
it must change in the same step that takes an item.

* `put`: check the queue's node, which has the state; create the item
* `put` with a `maxsize`: the same, and delete the producer's node in its queue
* `get`: create and delete the claim, delete the item; the member is written
* `claim`: create the claim, write the item to count the attempt
* acknowledge: delete the claim, delete the item
* give back: delete the claim
* move to `dead`: create and delete the claim, delete the item, create it in `dead`

If Curator's `putMulti` has put several items in one node, the change does not delete the node: it writes the remaining
items back, and the next item's claims are counted from the new version.

`get` creates the claim and deletes it, because the create fails if another client, ours or Curator's, has claimed the
item.
"""
