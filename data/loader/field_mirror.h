// field_mirror.h: numbers that change where their sample's image is flipped left-right (data.fields.*.mirror): each is
// multiplied by 1 or -1. Of a pose as yaw, pitch and roll it is [-1, 1, -1]; of a rotation as the first two columns of
// its matrix R, which becomes M R M with M = diag(-1, 1, 1), it is [1, -1, -1, -1, 1, 1].
#ifndef DT_DATA_FIELD_MIRROR_H
#define DT_DATA_FIELD_MIRROR_H

#include "fields.h"

// Of all fields. DT_E_USAGE with the place: not one factor an element, another number, not one image.
dt_status dt_field_mirrors_read(dt_fields *f, const dt_config *c);
// In place: a training sample's values of the field, normalised.
void dt_field_mirror(const dt_fields *f, int field, const dt_augment_key *k, float *x);

#endif
