#!/usr/bin/env python3
"""From WAV files to batches of log-mel spectrograms: dtrain, torchaudio and librosa in one run.

    tests/bench/bench_acoustic.py [--build build] [--files 3000] [--rounds 3] [--rate 16000] [--file-rate 16000]
                                  [--augment] [--python PYTHON]

Makes one-second WAVs of 16 bits once (.cache/bench-acoustic), packs them for dtrain, and reads whole epochs with
each side in turn, --rounds times: 512 points, hop 160, 64 bands, decibels, batches of 32. Peers read the files
with soundfile in a DataLoader with 0 to `cores` workers, with the spectrogram made in the worker or, for
torchaudio, of the whole batch; the best of each counts. dtrain has as many workers as there are cores. CPU time a file, in one thread (dtrain:
all), is told as well: other load on the machine changes it little. Needs torch, torchaudio, librosa and soundfile (torchaudio is not needed to run librosa's part).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import wave

from bench_short import most, runs_peers

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's: workers are the threads

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
N_FFT, HOP, N_MELS, BATCH = 512, 160, 64, 32


def make_files(folder, n, rate):
    import numpy as np
    rng = np.random.default_rng(1)
    t = np.arange(rate) / rate
    for i in range(n):
        path = os.path.join(folder, f"{i % 10}/{i:05d}.wav")
        if os.path.exists(path):
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        x = np.sin(2 * np.pi * rng.uniform(100, 3000) * t) * 0.3 + rng.standard_normal(rate) * 0.05
        with wave.open(path, "wb") as f:
            f.setparams((1, 2, rate, rate, "NONE", ""))
            f.writeframes((x * 32767).astype("<i2").tobytes())


# ---- one side, in a process of its own -------------------------------------------------------------
def peer(a):
    import numpy as np
    import soundfile
    import torch
    torch.version.cuda = None  # a torchaudio for another CUDA refuses to load; nothing here needs one
    paths = sorted(os.path.join(d, f) for d, _, names in os.walk(a.folder) for f in names if f.endswith(".wav"))
    if a.peer == "librosa":
        import librosa
        basis = librosa.filters.mel(sr=a.rate, n_fft=N_FFT, n_mels=N_MELS)  # melspectrogram makes it anew for each file
    else:
        import torchaudio
        mel = torch.nn.Sequential(torchaudio.transforms.MelSpectrogram(a.rate, N_FFT, hop_length=HOP, n_mels=N_MELS),
                                  torchaudio.transforms.AmplitudeToDB("power", top_db=80))
        resample = torchaudio.transforms.Resample(a.file_rate, a.rate) if a.file_rate != a.rate else None

    class Files(torch.utils.data.Dataset):
        def __len__(self):
            return len(paths)

        def __getitem__(self, i):
            x, rate = soundfile.read(paths[i], dtype="float32")
            if a.peer == "librosa":
                if rate != a.rate:
                    x = librosa.resample(x, orig_sr=rate, target_sr=a.rate)
                power = np.abs(librosa.stft(x, n_fft=N_FFT, hop_length=HOP)) ** 2
                return torch.from_numpy(librosa.power_to_db(basis @ power)), i % 10
            x = torch.from_numpy(x)
            if resample is not None:
                x = resample(x)
            return (x if a.peer == "torchaudio-batch" else mel(x)), i % 10

    best, cpu_us = 0, 0
    for workers, threads in [(0, 1), (0, a.cores)] + [(w, 1) for w in range(1, a.cores + 1)]:
        torch.set_num_threads(threads)
        loader = torch.utils.data.DataLoader(Files(), batch_size=BATCH, shuffle=True, num_workers=workers, drop_last=True,
                                             persistent_workers=workers > 0, prefetch_factor=4 if workers else None)
        with torch.inference_mode():
            for epoch in range(2):  # the first one warms up
                begin, cpu, n = time.perf_counter(), time.process_time(), 0
                for x, _ in loader:
                    n += len(mel(x)) if a.peer == "torchaudio-batch" else len(x)
                rate = n / (time.perf_counter() - begin)
                if (workers, threads) == (0, 1):
                    cpu_us = (time.process_time() - cpu) / n * 1e6
        print(f"  {a.peer}, {workers} workers, {threads} threads: {rate:.0f} files/s", file=sys.stderr)
        best = max(best, rate)
    print(json.dumps([best, cpu_us]))


def dtrain(a, packed, workers):
    augment = "data.augment={sound: [{noise: [10, 40]}, {gain: 6}, {time_shift: 0.1}, {freq_mask: 8}, {time_mask: 10}]}"
    config = os.path.join(os.path.dirname(packed), "bench.yaml")
    with open(config, "w") as f:
        f.write(f"""run: {{name: bench}}
data:
  path: {packed}
  fields:
    sound: {{kind: audio, rate: {a.rate}, seconds: 1.0, n_fft: {N_FFT}, hop: {HOP}, n_mels: {N_MELS}}}
    label: {{kind: class}}
model: {{name: resnet}}
train: {{global_batch: {BATCH}, micro_batch: {BATCH}}}
""")
    cmd = [os.path.join(ROOT, a.build, "bench_loader"), config, f"data.workers={workers}"] + [augment] * a.augment
    r = json.loads(subprocess.run(cmd, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    print(f"  dtrain, {workers} workers: {r['samples_per_s']:.0f} files/s, {r['cpu_us_per_sample']:.0f} us of CPU each", file=sys.stderr)
    return r["samples_per_s"], r["cpu_us_per_sample"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--files", type=int, default=3000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--rate", type=int, default=16000)
    p.add_argument("--file-rate", type=int, default=16000)
    p.add_argument("--augment", action="store_true", help="of dtrain alone: what its augmentation costs")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--peer", help=argparse.SUPPRESS)
    p.add_argument("--folder", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.peer:
        return peer(a)
    a.files, a.rounds = most(a.files, 64), most(a.rounds, 1)
    cache = os.path.join(ROOT, ".cache", "bench-acoustic")
    a.folder = os.path.join(cache, f"wav-{a.file_rate}-{a.files}")
    packed = a.folder + ".lmdb"
    make_files(a.folder, a.files, a.file_rate)
    if not os.path.exists(packed):
        subprocess.run([os.path.join(ROOT, a.build, "dtrain"), "pack", a.folder, packed], check=True, stderr=subprocess.DEVNULL)
    rates = {}
    for _ in range(a.rounds):
        rates.setdefault("dtrain", []).append(dtrain(a, packed, a.cores))
        for name in ("torchaudio", "torchaudio-batch", "librosa") if runs_peers("torch", "torchaudio", "librosa", "soundfile") else ():
            cmd = [a.python, __file__, "--peer", name, "--folder", a.folder, "--cores", str(a.cores), "--rate", str(a.rate),
                   "--file-rate", str(a.file_rate)]
            rates.setdefault(name, []).append(json.loads(subprocess.run(cmd, check=True, text=True, stdout=subprocess.PIPE).stdout))
    medians = {name: [statistics.median(v[k] for v in values) for k in (0, 1)] for name, values in rates.items()}
    ours = medians["dtrain"]
    print(f"{a.files} WAVs of 1 s, {a.file_rate} -> {a.rate} Hz, {a.cores} cores, medians of {a.rounds} rounds")
    print("| | files/s | dtrain's ratio | CPU a file, one thread | dtrain's ratio |\n|---|---|---|---|---|")
    for name, (rate, cpu) in medians.items():
        print(f"| {name} | {rate:.0f} | {ours[0] / rate:.2f} | {cpu:.0f} us | {cpu / ours[1]:.2f} |")


if __name__ == "__main__":
    main()
