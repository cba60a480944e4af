"""Writes tests/golden/resize_golden.h: what Pillow's bilinear resize makes of a small picture.

Run by hand in an environment with Pillow:  python tests/golden/make_resize.py
"""
import os

import PIL
from PIL import Image

W, H = 13, 9


def picture(mode):
    channels = 3 if mode == "RGB" else 1
    data = bytes((x * 37 + y * 61 + c * 91 + x * y * 13) % 256
                 for y in range(H) for x in range(W) for c in range(channels))
    return Image.frombytes(mode, (W, H), data)


CASES = [("RGB", 5, 4, None), ("RGB", 20, 17, None), ("L", 6, 9, None), ("L", 3, 2, (2, 1, 11, 8)),
         ("RGB", 7, 5, (1, 2, 6, 7))]
out = [f"// Made by make_resize.py with Pillow {PIL.__version__}.",
       "static const struct {", "    int channels, w, h;", "    bool has_box;", "    double box[4];",
       "    const uint8_t *bytes;", "} RESIZE_CASES[] = {"]
arrays = []
for i, (mode, w, h, box) in enumerate(CASES):
    data = picture(mode).resize((w, h), Image.BILINEAR, box=box).tobytes()
    arrays.append(f"static const uint8_t RESIZE_{i}[] = {{{', '.join(map(str, data))}}};")
    numbers = ", ".join(map(str, box or (0, 0, 0, 0)))
    out.append(f"    {{{3 if mode == 'RGB' else 1}, {w}, {h}, {str(box is not None).lower()}, "
               f"{{{numbers}}}, RESIZE_{i}}},")
out.append("};")
path = os.path.join(os.path.dirname(__file__), "resize_golden.h")
with open(path, "w") as f:
    f.write("\n".join([out[0]] + arrays + out[1:]) + "\n")
