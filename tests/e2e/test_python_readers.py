"""Functions of test_python_readers.sh: what it trains on, and checks of what it wrote."""
import glob


def check(work, *found):
    files = len(glob.glob(work + "/raw/**/*.[bB][mM][pP]", recursive=True))
    if "webdataset" in found:
        import webdataset
        samples = list(webdataset.WebDataset(sorted(glob.glob(work + "/small-*.tar")), shardshuffle=False))
        assert len(samples) == files, f"webdataset: {len(samples)} samples of {files} files"
        for s in samples:
            images = [k for k in s if k.endswith("bmp")]
            assert len(images) == 1 and s[images[0]][:2] == b"BM", s.keys()
        print("webdataset reads", len(samples), "samples")
    if "lmdb" in found:
        import lmdb
        with lmdb.open(work + "/small.lmdb", readonly=True, lock=False) as env, env.begin() as txn:
            images = sum(bytes(v[:2]) == b"BM" for _, v in txn.cursor())
        assert images == files, f"lmdb: {images} images of {files} files"
        print("lmdb reads", images, "images")
