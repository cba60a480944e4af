"""Functions of test_memory_flat.sh: what it trains on, and checks of what it wrote."""
from small_set import records


def check_flat(metrics):
    rss = {r["step"]: r["rss"] for r in records(metrics, "step")}
    assert len(rss) == 700, f"{len(rss)} steps in metrics.jsonl"
    later = [v for s, v in rss.items() if s >= 200]
    low, high = min(later), max(later)
    print(f"step 200: {rss[200] / 2**20:.1f} MiB, then {low / 2**20:.1f} to {high / 2**20:.1f}")
    assert high <= 1.02 * rss[200] and low >= 0.98 * rss[200], "resident memory is not flat"
