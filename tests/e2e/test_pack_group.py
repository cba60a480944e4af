"""Functions of test_pack_group.sh: what it trains on, and checks of what it wrote."""
import random


def make():
    random.seed(1)
    with open("X.txt", "w") as x, open("y.txt", "w") as y:
        for i in range(200):
            v = [random.gauss(0, 1) for _ in range(4)]
            x.write(" ".join(f"{a:.6f}" for a in v) + "\n")
            y.write(f"{int(v[0] * v[1] > 0)}\n") # no linear function of the numbers
