// fuzz_audio.c: any bytes as a sound, to one and two channels, at its own and at another rate, from the
// middle and the end. Must decode or say why not; every sample must be written and finite.
// Parser: data/decode/audio_file.c
#include "data/decode/audio.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static const dt_audio_clip CLIPS[] = {
        {8000, 1, 700, DT_PAD_reflect}, {16000, 2, 300, DT_PAD_wrap}, {11025, 1, 64, DT_PAD_zero}};
    static dt_clipper *clipper;
    static float out[2 * 700];
    if (!clipper) clipper = dt_clipper_create();
    for (size_t i = 0; i < sizeof CLIPS / sizeof *CLIPS; i++) {
        const dt_audio_clip *c = &CLIPS[i];
        size_t n = (size_t)c->n_samples;
        for (size_t k = 0; k < sizeof out / sizeof *out; k++) out[k] = NAN;
        uint64_t at = i == 1 ? UINT32_MAX : DT_CLIP_CENTRE;
        if (dt_clipper_run(clipper, (dt_span){data, n_bytes}, c, at, out, n) != DT_OK) continue;
        for (size_t k = 0; k < n * (size_t)c->channels; k++)
            if (!isfinite(out[k])) abort();
    }
    return 0;
}
