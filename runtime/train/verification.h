// verification.h: how well embeddings tell people apart who were never seen in training.
#ifndef DT_TRAIN_VERIFICATION_H
#define DT_TRAIN_VERIFICATION_H

#include <stddef.h>
#include <stdint.h>

typedef struct dt_verification {
    double auc; // P(score of a genuine pair > score of an impostor pair), ties count half
    double eer; // where false accepts equal false rejects, interpolated
    int64_t n_genuine, n_impostor;
} dt_verification;

// Compares all pairs of n embeddings (n,d), row-major, by cosine similarity; a pair is genuine if its labels
// are equal. records (n, width), or NULL: the records that each sample is made of; samples that share a record
// are not compared, as an image compared with itself is no test. auc and eer are NaN if there is no genuine or
// no impostor pair.
void dt_verify_embeddings(const float *embeddings, const int32_t *labels, const uint32_t *records,
                          int width, int64_t n, int64_t d, dt_verification *out);
// The same from scores. Sorts both arrays in place.
void dt_verify_scores(float *genuine, int64_t n_genuine, float *impostor, int64_t n_impostor,
                      dt_verification *out);

#endif
