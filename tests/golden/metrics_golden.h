// Made by make_metrics.py with scikit-learn 1.9.1.
typedef struct golden_value {
    const char *name;
    double value;
} golden_value;
static const int LABEL_0[] = {0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1,
                              0, 1, 1, 0, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, 1, 0};
static const int PREDICTED_0[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 1,
                                  0, 1, 1, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 0};
static const golden_value VALUES_0[] = {{"accuracy", 0.9},
                                        {"macro_f1", 0.8958333333333333},
                                        {"recall", 0.8900255754475703},
                                        {"recall.0", 0.8235294117647058},
                                        {"recall.1", 0.9565217391304348},
                                        {NULL, 0}};
static const int LABEL_1[] = {3, 4, 0, 1, 3, 0, 0, 1, 4, 4, 1, 2, 4, 2, 4, 3, 4, 2, 4, 2,
                              4, 1, 1, 0, 1, 1, 1, 1, 0, 4, 1, 0, 0, 3, 2, 1, 0, 3, 1, 1,
                              3, 4, 0, 1, 3, 4, 2, 4, 0, 3, 1, 2, 0, 4, 1, 2, 2, 1, 0, 1};
static const int PREDICTED_1[] = {3, 1, 0, 1, 3, 1, 1, 1, 4, 3, 0, 3, 4, 2, 1, 2, 4, 0, 0, 2,
                                  4, 1, 1, 0, 4, 1, 3, 1, 2, 0, 1, 3, 1, 3, 4, 3, 0, 0, 1, 2,
                                  4, 4, 0, 1, 0, 4, 2, 2, 0, 0, 4, 2, 0, 4, 2, 2, 4, 1, 3, 1};
static const golden_value VALUES_1[] = {{"accuracy", 0.5333333333333333},
                                        {"macro_f1", 0.5132631578947369},
                                        {"recall", 0.5160256410256411},
                                        {"recall.0", 0.5},
                                        {"recall.1", 0.6111111111111112},
                                        {"recall.2", 0.5555555555555556},
                                        {"recall.3", 0.375},
                                        {"recall.4", 0.5384615384615384},
                                        {NULL, 0}};
static const int LABEL_2[] = {0, 3, 1, 0, 2, 3, 2, 3, 0, 3, 2, 1, 3, 3, 1,
                              3, 3, 3, 2, 0, 0, 0, 1, 3, 3, 2, 0, 2, 3, 3};
static const int PREDICTED_2[] = {6, 2, 1, 2, 2, 3, 2, 3, 0, 3, 2, 1, 3, 3, 1,
                                  3, 3, 1, 2, 0, 0, 5, 1, 3, 2, 4, 0, 6, 3, 3};
static const golden_value VALUES_2[] = {{"accuracy", 0.7333333333333333},
                                        {"macro_f1", 0.44301592127679085},
                                        {"recall", 0.7518315018315018},
                                        {"recall.0", 0.5714285714285714},
                                        {"recall.1", 1.0},
                                        {"recall.2", 0.6666666666666666},
                                        {"recall.3", 0.7692307692307693},
                                        {NULL, 0}};
static const int LABEL_3[] = {10, 8, 9, 3, 8, 8, 0, 5, 3, 10, 11, 9, 9, 10, 5, 7, 6, 0, 4, 7};
static const int PREDICTED_3[] = {0, 0, 9, 2, 4, 5, 8, 8, 7, 5, 1, 1, 1, 5, 5, 7, 10, 11, 4, 3};
static const golden_value VALUES_3[] = {{"accuracy", 0.2},
                                        {"macro_f1", 0.16666666666666666},
                                        {"recall", 0.2333333333333333},
                                        {"recall.0", 0.0},
                                        {"recall.3", 0.0},
                                        {"recall.4", 1.0},
                                        {"recall.5", 0.5},
                                        {"recall.6", 0.0},
                                        {"recall.7", 0.5},
                                        {"recall.8", 0.0},
                                        {"recall.9", 0.3333333333333333},
                                        {"recall.10", 0.0},
                                        {"recall.11", 0.0},
                                        {NULL, 0}};
static const int LABEL_4[] = {2};
static const int PREDICTED_4[] = {2};
static const golden_value VALUES_4[] = {
    {"accuracy", 1.0}, {"macro_f1", 1.0}, {"recall", 1.0}, {"recall.2", 1.0}, {NULL, 0}};
static const int LABEL_5[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
static const int PREDICTED_5[] = {1, 2, 2, 1, 1, 2, 1, 1, 2, 1, 2, 3, 0, 2, 1, 2};
static const golden_value VALUES_5[] = {{"accuracy", 0.0625},
                                        {"macro_f1", 0.029411764705882353},
                                        {"recall", 0.0625},
                                        {"recall.0", 0.0625},
                                        {NULL, 0}};
static const struct {
    int n_classes, n;
    const int *label, *predicted;
    const golden_value *values;
} CASES[] = {
    {2, 40, LABEL_0, PREDICTED_0, VALUES_0}, {5, 60, LABEL_1, PREDICTED_1, VALUES_1},
    {7, 30, LABEL_2, PREDICTED_2, VALUES_2}, {12, 20, LABEL_3, PREDICTED_3, VALUES_3},
    {3, 1, LABEL_4, PREDICTED_4, VALUES_4},  {4, 16, LABEL_5, PREDICTED_5, VALUES_5},
};
