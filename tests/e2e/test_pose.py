"""Functions of test_pose.sh: what it trains on, and checks of what it wrote."""
from small_set import records, table


def check(out, poses, steps):
    rows = table(poses)
    spread = [[float(r[k]) for r in rows] for k in ("yaw", "pitch", "roll")]
    guess = sum(sum(abs(v - sum(s) / len(s)) for v in s) / len(s) for s in spread) / 3
    mae = records(out)[-1]["mae"]
    print(f"mae {mae:.2f} degrees, guessing the mean {guess:.2f}")
    assert int(steps) < 90 or mae < 0.75 * guess
