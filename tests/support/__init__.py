"""What all tests share: the run's servers, processes, the command line. Helpers of one room stay in that room."""
