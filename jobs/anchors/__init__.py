"""The programs `wayveil anchors build` and `wayveil anchors show`: public places that releases may be moved to."""
