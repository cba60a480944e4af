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

// Cosine similarity of all pairs of n embeddings (n,d), row-major; a pair is genuine when its labels
// are equal. records (n, width), or NULL: what each sample is made of; two samples that share a record
// are no pair, as comparing an image with itself is no test. auc and eer are NaN when there are no
// genuine or no impostor pairs.
void dt_verify_embeddings(const float *embeddings, const int32_t *labels, const uint32_t *records,
                          int width, int64_t n, int64_t d, dt_verification *out);
// The same from scores. Sorts both arrays in place.
void dt_verify_scores(float *genuine, int64_t n_genuine, float *impostor, int64_t n_impostor,
                      dt_verification *out);

#endif
