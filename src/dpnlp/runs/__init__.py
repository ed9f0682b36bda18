"""What a run leaves behind: its folder, and the tables, plots and pages made from many of them."""
