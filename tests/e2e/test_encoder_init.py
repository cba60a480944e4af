"""Functions of test_encoder_init.sh: which weights a run begins with."""
import glob
from small_set import read_safetensors


def weights(run):
    return read_safetensors(sorted(glob.glob(f"{run}/checkpoints/step-*/model.safetensors"))[-1])[0]


def check(run, one, plain, field):
    """The field's encoder is the network `one` without its head; all else is as in `plain`."""
    now, theirs, seed = weights(run), weights(one), weights(plain)
    taken = {f"{field}.{k}": v for k, v in theirs.items() if not k.startswith("heads.")}
    assert len(taken) == 18 and set(taken) < set(now) == set(seed), set(taken) - set(now)
    for k, v in now.items():
        assert v == taken.get(k, seed[k]), k
    assert any(v != seed[k] for k, v in taken.items())


def check_encoder(run, plain):
    now, theirs = weights(run), weights(plain)
    for k, v in now.items():
        if k.startswith("fingerprint."):
            assert (v == theirs[k]) != k.startswith("fingerprint.proj."), k
