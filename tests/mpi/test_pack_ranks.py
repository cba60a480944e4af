"""Functions of test_pack_ranks.sh: what it trains on, and checks of what it wrote."""
import os


def make():
    for i in range(2400):
        os.makedirs(f"raw/c{i % 3}", exist_ok=True)
        n = i if i < 1000 else 1900 + i % 300 if i < 2300 else 60000 + i
        with open(f"raw/c{i % 3}/f{i}.npy", "wb") as f:
            f.write(i.to_bytes(8, "little") + bytes((i * k * 7919 >> 5) & 255 for k in range(min(n, 3000))) + bytes(max(n - 3000, 0)))
        if i % 50 == 0:
            os.link(f"raw/c{i % 3}/f{i}.npy", f"raw/c{i % 3}/copy{i}.npy")
