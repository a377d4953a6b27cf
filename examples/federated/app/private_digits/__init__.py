"""A Flower app: digits of many clients, learnt privately."""
