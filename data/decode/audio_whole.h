// audio_whole.h: whether a sound file holds all the bytes that it announces. Private to data/decode.
#ifndef DT_DATA_AUDIO_WHOLE_H
#define DT_DATA_AUDIO_WHOLE_H

#include "audio.h"
#include "data/file/kinds.h"

// Checks what the container itself states: sizes of RIFX, RF64, AIFF, AU and CAF; pages of Ogg with their
// checksums. DT_OK for kinds that state nothing. DT_E_DATA with the place. Whatever follows the last page of an
// Ogg, such as a tag, is cut off s, because libsndfile looks for that page at the end. Does not allocate.
dt_status dt_audio_check_whole(const dt_kind *k, dt_span *s);

#endif
