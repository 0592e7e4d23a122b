package sql

// hasSeveralHosts reports whether the URL names several hosts. A primary that was replaced and came back
// without its standbys still answers what it knows, but its commits hang.
func (s *Store) hasSeveralHosts() bool { return len(s.target.hosts) > 1 }

// useNextHost makes the next attempt go to the host after the one that failed. It passes over a host
// whose commit hung, once: an attempt there takes all of its time. The distance of the host that failed counts
// until the next one has answered: a shorter attempt might be too short to connect to a host that is as far away.
func (s *Store) useNextHost(failed int64) {
	next, hosts := failed+1, int64(len(s.target.hosts))
	hung := s.hung.Load()
	if hung > 0 && (hung-1)%hosts == next%hosts {
		s.hung.CompareAndSwap(hung, 0)
		next++
	}
	s.host.CompareAndSwap(failed, next)
}
