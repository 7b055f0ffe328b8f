"""The programs `wayveil tiling build` and `wayveil tiling show`: public tiles from roads and places."""
