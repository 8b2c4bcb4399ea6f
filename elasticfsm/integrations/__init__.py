"""Adapters for engines that other people write; each is imported only by the engine that it is for."""
