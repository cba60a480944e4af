// sort.h: comparisons for qsort and bsearch, ascending.
#ifndef DT_BASE_SORT_H
#define DT_BASE_SORT_H

// double and float, of which none is NaN; int64_t; char *.
int dt_sort_reals(const void *a, const void *b);
int dt_sort_floats(const void *a, const void *b);
int dt_sort_ints(const void *a, const void *b);
int dt_sort_strings(const void *a, const void *b);

#endif
