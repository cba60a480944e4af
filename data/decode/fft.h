// fft.h: power spectra of real frames, eight frames at a time.
//
// A block of frames is (n, LANES): sample i of all eight frames side by side, so one vector instruction does
// the same step for eight frames and nothing is ever shuffled. Each lane is computed by itself, in the same
// order of operations: a frame's numbers do not depend on its neighbours, the ISA or the thread.
#ifndef DT_DATA_FFT_H
#define DT_DATA_FFT_H

#include <stdbool.h>
#include <stddef.h>

enum { DT_LANES = 8, DT_FFT_MAX_PRIME = 127, DT_FFT_MAX = 65536 };

typedef float dt_lanes __attribute__((vector_size(DT_LANES * sizeof(float)), aligned(32)));

typedef struct dt_fft dt_fft; // immutable: shared by workers

// Whether there is a transform of n real points: 2 <= n <= DT_FFT_MAX with no prime factor above
// DT_FFT_MAX_PRIME.
bool dt_fft_has_size(int n);
dt_fft *dt_fft_create(int n);
void dt_fft_destroy(dt_fft *f);
// Vectors (of LANES) that each of the two work blocks must have: at least n.
size_t dt_fft_work(const dt_fft *f);
// x: (n, LANES) samples in a block of dt_fft_work vectors, overwritten; y: the other block.
// power: (n / 2 + 1, LANES): |X|^2 of the unnormalised transform; must not overlap x or y.
void dt_fft_power(const dt_fft *f, dt_lanes *x, dt_lanes *y, dt_lanes *power);

#endif
