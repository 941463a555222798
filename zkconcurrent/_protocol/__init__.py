"""The words between engine and recipes: operations, tickets, and the rules of order and of leases. Pure."""
