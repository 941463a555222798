"""The world that is simulated: time, servers, network, clients, loops, and the schedules of a run."""
