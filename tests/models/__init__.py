"""One model of each primitive: its state, its calls, and which outcomes are right. `history.py` judges by them."""
