// class_names.h: which number each class has belongs to the run: the network's outputs are in that order. It is kept as
// JSON, a member for each class field, in state.json and in the metadata of model.safetensors:
//
//   {"label": ["cat", "dog"], "camera": 3}     3: the values of the data are the numbers 0, 1, 2
//
// Every later data set is opened with it (dt_data_open_as), so its classes get these numbers, whichever of them it has.
#ifndef DT_TRAIN_CLASS_NAMES_H
#define DT_TRAIN_CLASS_NAMES_H

#include "batch/field_info.h"

// The names of the classes of all class fields as JSON; heap. "{}" where there is no class field.
char *dt_class_names_text(const dt_field_info *fields, int n_fields);

// Warns where weights that were trained with the classes `theirs` meet as many classes of other names: their outputs
// mean something else here. `from`: what they come from. Members that are not in both are no matter.
void dt_class_names_compare(const char *theirs, const char *ours, const char *from);

// Whether train.teacher, whose classes are `theirs`, numbers the same classes of a field as we do: DT_E_USAGE if not.
dt_status dt_class_names_check(const char *theirs, const char *ours, const char *field);

#endif
