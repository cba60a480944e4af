#!/usr/bin/env python3
"""What librosa and torchaudio make of one second of sound: writes audio.safetensors beside this script.

Run by hand when a case is added (needs torch, torchaudio, librosa, soundfile, safetensors);
test_golden_audio.c reads the file and holds the same options. torchaudio computes in float64 here, so
that what is left of a difference is ours. The sound is a chirp with harmonics, noise and a silent part.
Also writes corpus files of the fuzz target: the formats that libsndfile reads for us.
"""
import os

import librosa
import numpy as np
import soundfile
import torch

torch.version.cuda = None  # a torchaudio for another CUDA refuses to load; nothing here needs one
import torchaudio  # noqa: E402
import torchaudio.functional as F  # noqa: E402
import torchaudio.transforms as T  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
RATE, N = 8000, 3000
rng = np.random.default_rng(11)
t = np.arange(N) / RATE
x = sum(np.sin(2 * np.pi * k * (200 * t + 900 * t ** 2)) / k for k in range(1, 5)) * 0.2
x = x + rng.standard_normal(N) * 0.01
x[1800:2300] = 0
x = (np.round(x * 32767) / 32768).astype(np.float32)  # whole 16-bit values
wave = torch.from_numpy(x).double()[None]
out = {"x": x}


def put(name, value):
    out[name] = np.ascontiguousarray(np.asarray(value, dtype=np.float32))


def torch_mel(**kw):
    return T.MelSpectrogram(sample_rate=RATE, **kw).double()(wave)[0]


def librosa_mel(**kw):
    return librosa.feature.melspectrogram(y=x.astype(np.float64), sr=RATE, dtype=np.float64, **kw)


# spectrograms
put("torch_power", T.Spectrogram(n_fft=256, hop_length=128, power=2).double()(wave)[0])
put("torch_odd", T.Spectrogram(n_fft=225, win_length=200, hop_length=90, power=1, center=False).double()(wave)[0])
put("librosa_amplitude", np.abs(librosa.stft(x.astype(np.float64), n_fft=294, hop_length=200, dtype=np.complex128)))
# mel
put("torch_mel", torch_mel(n_fft=400, win_length=320, hop_length=160, n_mels=40, f_min=20.0, f_max=3800.0))
put("torch_mel_slaney", torch_mel(n_fft=512, hop_length=128, n_mels=48, mel_scale="slaney", norm="slaney"))
put("librosa_mel", librosa_mel(n_fft=512, hop_length=128, n_mels=40))
put("librosa_mel_htk", librosa_mel(n_fft=256, hop_length=80, n_mels=24, htk=True, norm=None, power=1, pad_mode="reflect"))
# logarithms
put("torch_ln", torch.log(torch_mel(n_fft=400, hop_length=160, n_mels=32) + 1e-6))
put("torch_db", T.AmplitudeToDB("power", top_db=80)(torch_mel(n_fft=400, hop_length=160, n_mels=32)))
put("torch_db_amplitude", T.AmplitudeToDB("magnitude")(T.Spectrogram(n_fft=256, hop_length=300, power=1).double()(wave)[0]))
put("librosa_db", librosa.power_to_db(librosa_mel(n_fft=512, hop_length=128, n_mels=40)))
# cepstra
put("torch_mfcc", T.MFCC(RATE, n_mfcc=13, melkwargs=dict(n_fft=400, hop_length=160, n_mels=32)).double()(wave)[0])
put("librosa_mfcc", librosa.feature.mfcc(y=x.astype(np.float64), sr=RATE, n_mfcc=20, n_fft=512, hop_length=128, n_mels=40,
                                         dtype=np.float64))
# rates
for a, b in [(8000, 16000), (16000, 8000), (44100, 16000), (22050, 16000), (8000, 11025), (48000, 8000)]:
    put(f"resample_{a}_{b}", F.resample(wave, a, b)[0])

save_file(out, os.path.join(HERE, "audio.safetensors"))
print({k: v.shape for k, v in out.items()}, os.path.getsize(os.path.join(HERE, "audio.safetensors")))

corpus = os.path.join(HERE, "..", "fuzz", "corpus_audio")
os.makedirs(corpus, exist_ok=True)
short, stereo = x[:400], np.stack([x[:200], -x[:200]], axis=1)
for name, data, subtype in [("mono16.wav", short, "PCM_16"), ("stereo24.wav", stereo, "PCM_24"), ("mono8.wav", short, "PCM_U8"),
                            ("stereo32.wav", stereo, "PCM_32"), ("float.wav", short, "FLOAT"), ("double.wav", short[:100], "DOUBLE"),
                            ("ulaw.wav", short, "ULAW"), ("adpcm.wav", x[:600], "IMA_ADPCM"), ("mono16.flac", short, "PCM_16"),
                            ("stereo24.flac", stereo, "PCM_24"), ("mono.ogg", x[:1000], "VORBIS"), ("mono16.aiff", short, "PCM_16"),
                            ("mono16.au", short, "PCM_16"), ("mono16.w64", short, "PCM_16"),
                            ("mpeg25.mp3", x[:1500], "MPEG_LAYER_III")]:
    soundfile.write(os.path.join(corpus, name), data, RATE, subtype=subtype)
