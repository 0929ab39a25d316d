"""Judging pruners: questions whose answers are known, plain rankers to compare with, figures and reports."""
