"""How fast collabnets is, against the same algorithm as a plain PyTorch loop."""
