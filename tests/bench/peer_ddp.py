"""PyTorch's DistributedDataParallel over gloo on the CPU, for bench_hosts.sh: ResNet-18 of torchvision, SGD, random
images. Rank 0 prints the median seconds of a step. peer_ddp.py STEPS MICRO_BATCH SIDE CLASSES"""
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torchvision

steps, micro, side, classes = (int(x) for x in sys.argv[1:5])
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(torchvision.models.resnet18(num_classes=classes))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x = torch.rand(micro, 3, side, side).contiguous(memory_format=torch.channels_last)
y = torch.randint(classes, (micro,))
times = []
for step in range(steps):
    begin = time.monotonic()
    optimizer.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    times.append(time.monotonic() - begin)
if dist.get_rank() == 0:
    print(f"step {statistics.median(times[2:]):.4f}")
dist.destroy_process_group()
