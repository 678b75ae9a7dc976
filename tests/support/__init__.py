"""What tests of several rooms build on."""
