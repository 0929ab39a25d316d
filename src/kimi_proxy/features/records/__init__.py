"""Records: texts as trees of records, the choice of records within a budget, and the markers in the gaps."""
