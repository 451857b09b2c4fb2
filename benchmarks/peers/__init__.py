"""What fastdp is compared with: NumPy by a skilled hand (unsafe float noise), and OpenDP where installed."""
