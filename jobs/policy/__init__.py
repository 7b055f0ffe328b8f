"""The programs `wayveil policy check` and `wayveil policy explain`: is a policy usable, and what does it let whom learn."""
