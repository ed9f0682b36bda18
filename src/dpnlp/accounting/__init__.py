"""What many private answers cost together: composition, subsampling, three accountants, calibration, the ledger."""
