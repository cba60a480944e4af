"""Pictures of 72 megapixels for test_large_images.sh."""
import os

COLOURS = {"red": (200, 30, 40), "blue": (20, 40, 210)}


def make(folder):
    from PIL import Image
    Image.MAX_IMAGE_PIXELS = None
    for name, colour in COLOURS.items():
        os.makedirs(f"{folder}/{name}")
        image = Image.new("RGB", (9000, 8000), colour)
        image.save(f"{folder}/{name}/a.jpg", quality=80)
        image.save(f"{folder}/{name}/b.png", compress_level=1)


def make_pairs(path):
    """Records of two images."""
    import io, tarfile
    from PIL import Image
    with tarfile.open(path, "w") as tar:
        for i in range(4):
            for name, side in ("a.png", 8), ("b.png", 80):
                out = io.BytesIO()
                Image.new("RGB", (side, side)).save(out, "png")
                info = tarfile.TarInfo(f"{i}.{name}")
                info.size = out.tell()
                tar.addfile(info, io.BytesIO(out.getvalue()))
            info = tarfile.TarInfo(f"{i}.cls")
            info.size = 1
            tar.addfile(info, io.BytesIO(b"%d" % (i % 2)))


def add_progressive(folder):
    from PIL import Image
    Image.new("RGB", (9000, 8000), COLOURS["red"]).save(f"{folder}/red/c.jpg", quality=80, progressive=True)


def peak_below(mib, *command):
    """Runs a command whose process must not grow to so many MiB."""
    import resource, subprocess
    subprocess.run(command, check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    assert peak < float(mib), f"{peak} MiB: {command}"


def check_colours(tar):
    """All members are small pictures of their class' colour."""
    import io, tarfile
    from PIL import Image
    n = 0
    with tarfile.open(tar) as t:
        for member in t:
            if not member.name.endswith((".jpg", ".png")):
                continue
            image = Image.open(io.BytesIO(t.extractfile(member).read()))
            assert image.size == (36, 32), image.size
            name = "red" if "red" in member.name else "blue"
            for low, high in zip(image.convert("RGB").resize((1, 1)).getpixel((0, 0)), COLOURS[name]):
                assert abs(low - high) < 12, member.name
            n += 1
    assert n == 4, n
