"""Models whose numbers of distinct states others have published, explored by the search core of the checker."""
