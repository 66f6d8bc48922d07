"""Sources: each turns one kind of file, folder or object into `Examples`."""
