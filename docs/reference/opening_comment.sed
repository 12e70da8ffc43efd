# Turns the plain comment that opens a header into Doxygen's comment of the file. The line that this adds takes the
# place of #pragma once, so that what stands below keeps the numbers of its lines.
0,/^#pragma once/{
  1s|^//|/// @file\n///|
  1!s|^//|///|
  /^#pragma once/d
}
