"""Functions of test_weights_out.sh: what it trains on, and checks of what it wrote."""
import random
from safetensors.numpy import load_file
from small_set import bmp, write_tar


def make(path):
    random.seed(7)
    write_tar(path, [{"bmp": bmp(32, 32, [random.randrange(256) for _ in range(32 * 32 * 3)]), "cls": str(i % 2)} for i in range(16)])


def check_names(work):
    vit, convnext, mobile = (load_file(f"{work}/{name}.timm.safetensors") for name in ("vit", "convnext", "mobilenet"))
    assert "blocks.1.attn.qkv.bias" in vit and vit["pos_embed"].shape == (1, 17, 16), sorted(vit)
    assert "encoder.layers.encoder_layer_1.mlp.3.bias" in load_file(f"{work}/vit.torchvision.safetensors")
    assert convnext["stages.3.blocks.2.gamma"].shape == (768,), sorted(convnext)[:20]
    assert mobile["conv_head.weight"].shape == (1024, 576, 1, 1) and "blocks.5.0.conv.weight" in mobile, sorted(mobile)[:20]
