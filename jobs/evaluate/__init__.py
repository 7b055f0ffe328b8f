"""The programs `wayveil evaluate …`: how useful what is released is, on samples whose truth is known."""
