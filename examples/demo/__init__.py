"""`make demo`: MNIST at epsilon 1. `experiment` trains twice and checks itself, `report` writes what came out."""
