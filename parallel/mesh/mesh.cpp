// Mesh: coordinates and ranks.
#include "parallel/mesh/mesh.h"

namespace penstock {

Mesh::Mesh(const MeshShape& shape, int ranks) : shape_(shape) {
  const auto positive = [](const char* flag, int value) {
    require<ValueError>(value >= 1, "--{} {}: at least 1 wanted", flag, value);
  };
  positive("pp", shape.pp);
  positive("tp", shape.tp);
  positive("dp", shape.dp);
  positive("cp", shape.cp);
  positive("ep", shape.ep);
  positive("replicas", shape.replicas);
  require<ValueError>(shape.dp % shape.ep == 0, "--ep {} does not divide --dp {}", shape.ep, shape.dp);
  require<ValueError>(shape.size() == ranks,
                      "--pp {} x --dp {} x --cp {} x --tp {} makes {} ranks, but {} are running", shape.pp,
                      shape.dp, shape.cp, shape.tp, shape.size(), ranks);
}

MeshCoordinates Mesh::coordinates(int rank) const {
  require<ValueError>(rank >= 0 && rank < shape_.size(), "rank {} of a mesh of {}", rank, shape_.size());
  MeshCoordinates at;
  at.tp = rank % shape_.tp;
  rank /= shape_.tp;
  at.cp = rank % shape_.cp;
  rank /= shape_.cp;
  at.dp = rank % shape_.dp;
  rank /= shape_.dp;
  at.replica = rank % shape_.replicas;
  at.pp = rank / shape_.replicas;
  return at;
}

int Mesh::rank(const MeshCoordinates& at) const {
  const auto inside = [](const char* axis, int place, int size) {
    require<ValueError>(place >= 0 && place < size, "place {} on the axis {} of size {}", place, axis, size);
  };
  inside("pp", at.pp, shape_.pp);
  inside("replica", at.replica, shape_.replicas);
  inside("dp", at.dp, shape_.dp);
  inside("cp", at.cp, shape_.cp);
  inside("tp", at.tp, shape_.tp);
  return (((at.pp * shape_.replicas + at.replica) * shape_.dp + at.dp) * shape_.cp + at.cp) * shape_.tp +
         at.tp;
}

}  // namespace penstock
