padded
