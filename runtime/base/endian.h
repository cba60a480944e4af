// endian.h: reads unaligned numbers from the bytes of a file. Compilers turn each into one load.
#ifndef DT_BASE_ENDIAN_H
#define DT_BASE_ENDIAN_H

#include <stdint.h>

static inline uint16_t dt_le16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t dt_le32(const uint8_t *p) {
    return dt_le16(p) | (uint32_t)dt_le16(p + 2) << 16;
}
static inline uint64_t dt_le64(const uint8_t *p) {
    return dt_le32(p) | (uint64_t)dt_le32(p + 4) << 32;
}
static inline uint16_t dt_be16(const uint8_t *p) {
    return (uint16_t)(p[0] << 8 | p[1]);
}
static inline uint32_t dt_be32(const uint8_t *p) {
    return (uint32_t)dt_be16(p) << 16 | dt_be16(p + 2);
}
static inline uint64_t dt_be64(const uint8_t *p) {
    return (uint64_t)dt_be32(p) << 32 | dt_be32(p + 4);
}

#endif
