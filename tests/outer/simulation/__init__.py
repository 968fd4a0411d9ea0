"""Master and workers on a virtual clock and a virtual network file system, with faults drawn from a seed."""
