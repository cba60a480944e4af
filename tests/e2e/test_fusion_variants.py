"""Functions of test_fusion_variants.sh: what it trains on, and checks of what it wrote."""
from small_set import records


def check_fall(metrics):
    loss = [r["loss"] for r in records(metrics, "step")]
    first, last = sum(loss[:5]) / 5, sum(loss[-5:]) / 5
    print(f"{first:.3f} -> {last:.3f}")
    assert last < 0.6 * first


def check_pairs(out):
    eer, auc = (records(out)[-1][k] for k in ("eer", "pair_auc"))
    print(f"split by subject: eer {eer}, auc {auc}")
    assert 0 <= eer <= 0.6 and 0.4 <= auc <= 1
