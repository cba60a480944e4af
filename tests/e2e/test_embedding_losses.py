"""Functions of test_embedding_losses.sh."""


def check_order(path):
    subjects = [line.split("\t")[5].split("/")[1] for line in list(open(path))[1:]]
    assert len(subjects) == 64 and len(set(subjects)) > 4
    for i in range(0, 64, 4):
        assert len(set(subjects[i:i + 4])) == 1, subjects[i:i + 4]
