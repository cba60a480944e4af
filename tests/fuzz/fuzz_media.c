// fuzz_media.c: any bytes as the header of an image or a recording; whatever size the file is said to have.
// Parser: data/pack/where.c!where_value_of|dt_where_.*|quality_.*|dt_quality_.*|decibels|add_frames
#include "data/pack/transform.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    dt_media_info m;
    uint64_t sizes[] = {n_bytes, 0, UINT64_MAX, (uint64_t)n_bytes * 3};
    for (int i = 0; i < 4; i++) {
        if (!dt_media_info_read(&m, (dt_span){data, n_bytes}, sizes[i])) continue;
        if (isnan(m.width) && isnan(m.rate)) abort(); // true means a shape
        if (!isnan(m.width) && !(m.width > 0 && m.height > 0)) abort();
    }
    return 0;
}
