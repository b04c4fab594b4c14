"""The APIs that the emulator speaks: one pure file each."""
