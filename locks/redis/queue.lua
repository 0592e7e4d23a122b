-- One lock name on one Redis server: who holds it, who waits, who is next.
--
-- The whole step runs on the server, on its clock, as one atomic script. Every
-- mode may be sent again with the same id, any number of times and late: the
-- second time changes nothing.
--
-- KEYS, all but the last with the name's hash tag:
--   1 S  hash  format, name, epoch, run (the server's run_id), quiet (the end
--              of the quarantine), ticket and fence (the last given)
--   2 H  zset  id of each holder      -> when its lease and its hold have ended
--   3 Q  zset  place of each waiter   -> 0: ordered by the place's bytes
--   4 D  zset  place of each waiter   -> when it counts as dead
--   5 E  hash  id -> record; id@ -> when the lease ends of a holder that has a
--              hold; id! -> who evicted it
--   6 G  zset  tombstones: id that has left or released -> when; kept for ten
--              minutes, so that a late join makes no entry for an id that is gone
--   7    zset  every name in use -> until when it may be (not in a cluster)
-- A place is order .. ticket .. id; 16, 16 and 32 digits.
-- A record is JSON. join is 0 if the waiter has not subscribed, else the number of its
-- latest join: a grant that is published to it counts from there. order is the priority
-- turned round, in hexadecimal; hold the ms from the grant on in which the slot stays taken
-- whatever becomes of its holder; slots as "0,3-5". owner is not looked at.
-- Moments are ms; ticket, fence and since us of the server's clock, as texts of 16 digits.
--
-- ARGV: 1 mode, 2 id, 3 quarantine in ms, 4 prefix of the channels, 5 name,
--   6 the epoch that the caller knows, 7 the record it knows, 8 "nowait" or "",
--   9 ids of the enclosing runs, outermost first, separated by commas,
--   10 how many may wait already or "", 11 who it is, for those that are evicted.
-- Answers are JSON with a verdict, which tells what else is there:
--   join     granted, waiting: epoch record noRunID entries, those that were replaced;
--            waiting: place recheck quarantine, too | busy, nested: full inside quarantine
--            waiters entries | gone | evicted: by
--            noRunID: the server does not tell its run_id; recheck: in how many ms to ask
--            again; quarantine: for how many ms that, and nothing else, is in the way
--   renew    held: epoch record name | lost | evicted: by
--   release  released: existed epoch; leave, which leaves no hold behind, too
--   evict    marked | lost
--   list     list: name quarantine entries
--   any      format, name: found
-- An entry is: state, id, left and hold in ms, record, ended if only the hold keeps the
-- slot, by if somebody evicted it.
-- Published to an entry: recheck, in how many ms | epoch and record of a grant | evicted
local S, H, Q, D, E, G, INDEX = unpack(KEYS)
local mode, id, quarantine, channels = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local name, known, text, nowait, within = ARGV[5], ARGV[6], ARGV[7], ARGV[8] == 'nowait', ARGV[9]
local maxQueue, by = tonumber(ARGV[10]), ARGV[11]

local FORMAT = '3'
local TOMBSTONE = 600000 -- ms that a tombstone is kept
local SUSPECT = 500     -- ms left to a waiter that has stopped listening
local NEWCOMER = 3000   -- ms left to one that has not begun to listen yet
local CHECK = 450       -- ms after which the second makes sure of the first

-- Lua turns large numbers into 1.8e+15 unless told not to.
local function digits(n) return string.format('%016.0f', n) end

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

local format, stored, epoch, run, quiet, ticket, fence =
  unpack(redis.call('HMGET', S, 'format', 'name', 'epoch', 'run', 'quiet', 'ticket', 'fence'))
if format and format ~= FORMAT then return cjson.encode({verdict = 'format', found = format}) end
if stored == '' then stored = nil end
if stored and name ~= '' and stored ~= name then return cjson.encode({verdict = 'name', found = stored}) end
quiet = tonumber(quiet) or 0
local noRunID = false -- the server does not tell who it is

-- The record of an id. One that was lost (evicted by the server for want of
-- memory) counts as exclusive, until its owner's next renewal brings it back.
local function record(id)
  local text = redis.call('HGET', E, id)
  return text and cjson.decode(text) or {ttl = 0, weight = 1, max = 1, slots = '', join = 0, replace = '', hold = 0}, text
end

-- When a holder's hold is over.
local function holdEnd(r) return r.hold > 0 and math.floor(tonumber(r.since) / 1000) + r.hold or 0 end

-- Whether a holder has a lease; if not, only its hold keeps the slot.
local function alive(r, id) return r.hold == 0 or (tonumber(redis.call('HGET', E, id .. '@') or 0) > now) end

-- Begins or prolongs the lease of a holder.
local function lease(r, id, ttl)
  if r.hold > 0 then redis.call('HSET', E, id .. '@', now + ttl) end
  redis.call('ZADD', H, math.max(now + ttl, holdEnd(r)), id)
end

local function place(r, id) return r.order .. r.ticket .. id end

local function first() return redis.call('ZRANGE', Q, 0, 0)[1] end

-- A server at its maxmemory refuses commands that may need memory, but only as the
-- first write of a script. The steps of entries that exist must not fail so: they
-- begin with this write, which needs none.
local function bypassMemoryLimit() redis.call('ZREM', H, '-') end

-- Every key lives on for nine to ten times the TTL after the latest sign of
-- life, so that most scripts need not prolong it, and as long as a hold lasts.
local function prolong(key, span, least)
  local rest = redis.call('PTTL', key)
  if rest ~= -2 and rest < math.max(span * 9 / 10, least) then
    redis.call('PEXPIRE', key, string.format('%.0f', least + span))
  end
end

local function keep(ttl, held)
  held = math.max((held or 0) - now, 0)
  for _, key in ipairs({S, H, Q, D, E}) do prolong(key, 10 * ttl, held) end
  if INDEX then
    local span = math.max(10 * ttl, 86400000)
    redis.call('ZADD', INDEX, 'GT', now + held + span, stored or name)
    prolong(INDEX, span, held)
  end
end

local changed = false -- somebody has gone, or come in: the next may have a turn

-- Drops whose time is over.
local function dropExpired()
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', H, '-inf', now)) do
    redis.call('ZREM', H, dead)
    redis.call('HDEL', E, dead, dead .. '@', dead .. '!')
    changed = true
  end
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', D, '-inf', now)) do
    redis.call('ZREM', D, dead)
    redis.call('ZREM', Q, dead)
    redis.call('HDEL', E, dead:sub(33))
    changed = true
  end
end

-- The ranges of a list of slots, added to a table.
local function ranges(slots, into)
  for range in slots:gmatch('[%d-]*%d') do
    local from, to = range:match('^(%d+)-(%d+)$')
    into[#into + 1] = {tonumber(from or range), tonumber(to or range)}
  end
end

-- The smaller of a max and another one; 0 is none.
local function least(limit, max) return max > 0 and (limit == 0 or max < limit) and max or limit end

-- The holders' weights, the smallest max among them (0: none) and their slots,
-- in their order and with one beyond all.
local function holders()
  local sum, limit, taken = 0, 0, {}
  for _, h in ipairs(redis.call('ZRANGE', H, 0, -1)) do
    local r = record(h)
    sum, limit = sum + r.weight, least(limit, r.max)
    ranges(r.slots, taken)
  end
  table.sort(taken, function(a, b) return a[1] < b[1] end)
  taken[#taken + 1] = {math.huge, math.huge}
  return sum, limit, taken
end

-- The one rule of admission; who is first in the queue is asked elsewhere.
local function fits(r, sum, limit)
  limit = least(limit, r.max)
  return limit == 0 or sum + r.weight <= limit
end

-- The lowest numbers that nobody has, one for each unit of weight, and the one
-- after them. All before from are taken.
local function lowest(taken, units, from)
  local list = {}
  for _, t in ipairs(taken) do
    local n = math.min(t[1] - from, units)
    if n > 0 then
      list[#list + 1] = n == 1 and string.format('%d', from) or string.format('%d-%d', from, from + n - 1)
      units = units - n
    end
    if units == 0 then return table.concat(list, ','), from + n end
    from = math.max(from, t[2] + 1)
  end
end

local function overlap(slots, taken)
  local mine = {}
  ranges(slots, mine)
  for _, m in ipairs(mine) do
    for _, t in ipairs(taken) do
      if m[1] <= t[2] and t[1] <= m[2] then return true end
    end
  end
  return false
end

-- Numbers that grow even if the data is lost, as long as the clock does not go
-- back.
local function after(last) return digits(math.max((tonumber(last) or 0) + 1, micros)) end

-- Finds out whether this is still the server, and the data, of before. An epoch
-- is a stretch of time in which nothing was forgotten: a holder that is missing
-- in its own epoch was taken out, in another one it may come back. After a
-- restart or a failover nothing new is granted until those who held a slot have
-- had the time to say so; also if nothing at all is stored and the server has
-- just been started. Data that vanished from a server that runs on was deleted
-- by somebody, or never there: nothing to wait for.
local epochChecked = false
local function checkEpoch()
  epochChecked = true
  local info = redis.pcall('INFO', 'server')
  local here, age = '', nil
  if type(info) == 'string' then
    here, age = info:match('run_id:(%x+)') or '', tonumber(info:match('uptime_in_seconds:(%d+)'))
  end
  if here == '' then noRunID = true end
  if epoch and (here == '' or here == run) then return end
  if quarantine > 0 and (run and run ~= '' or not epoch and age and age * 1000 < quarantine + 1000) then
    quiet = now + quarantine
  end
  epoch = id .. '-' .. digits(micros)
  run = here
  redis.call('HSET', S, 'format', FORMAT, 'name', name, 'epoch', epoch, 'run', run, 'quiet', quiet)
  if INDEX then redis.call('ZREMRANGEBYSCORE', INDEX, '-inf', now) end
  stored = name
end

local function msUntil(moment) return math.max(moment - now, 0) end

-- Gives how many have received it, or an error.
local function publish(to, message) return redis.pcall('PUBLISH', channels .. to, cjson.encode(message)) end

-- Makes the first waiter a holder and tells it so, which spares it asking. Returns
-- its record, and from where on slots are free; nil if it is to ask. Its
-- lease lasts longer on the server than for itself: it counts from its latest join,
-- whose number is in the record. A waiter that is subscribed on a replica or another
-- node may get a message too, but this server cannot know: that one is only told to
-- ask.
local function grantFirst(place, waiter, taken, from)
  if not stored then return nil end
  if not epochChecked then -- after a restart nothing may be given for a while
    name = stored
    checkEpoch()
    if quiet > now then return nil end
  end
  local r = record(waiter)
  if r.join == 0 or not redis.call('ZSCORE', D, place) then return nil end
  local subscribers = redis.pcall('PUBSUB', 'NUMSUB', channels .. waiter)
  if (tonumber(subscribers[2]) or 0) == 0 then return nil end
  r.fence, r.since = after(fence), digits(micros)
  r.slots, from = lowest(taken, r.weight, from)
  fence = r.fence
  redis.call('HSET', S, 'fence', fence)
  redis.call('ZREM', Q, place)
  redis.call('ZREM', D, place)
  redis.call('HSET', E, waiter, cjson.encode(r))
  lease(r, waiter, r.ttl)
  keep(r.ttl, holdEnd(r))
  publish(waiter, {epoch = epoch, record = r})
  return r, from
end

-- Tells a waiter when the first slot is over that only a hold keeps: nobody is
-- there to give it back.
local function publishHoldExpiry(waiter)
  local live = redis.call('ZRANGE', H, 0, -1, 'WITHSCORES')
  for i = 1, #live, 2 do
    if not alive(record(live[i]), live[i]) then
      publish(waiter, {recheck = msUntil(live[i + 1]) + 1})
      return
    end
  end
end

-- Grants what the first waiters can get, or tells the first to ask; the one behind is
-- told when to check that this has happened. A waiter whose message nobody receives
-- counts as dead soon; the one behind is told to ask then. The caller is not told: if
-- it is one of them its ms are the result.
local function wake()
  local wait, told, i = 0, false, 0
  local sum, limit, taken -- looked up once: there may be thousands
  local from = 0
  local place = first()
  while place do
    local waiter = place:sub(33)
    local fit, given, free = i == 0, nil, nil
    if fit then
      if not taken then sum, limit, taken = holders() end
      fit = quiet <= now and fits(record(waiter), sum, limit)
      if fit then
        told, wait = false, 0
      elseif not told then
        if quiet <= now then publishHoldExpiry(waiter) end
        return nil
      end
    end
    if waiter == id then return wait end
    if fit then given, free = grantFirst(place, waiter, taken, from) end
    if given then
      sum, limit, from = sum + given.weight, least(limit, given.max), free
      told, wait, i = true, CHECK, -1
    else
      if quiet > now then return nil end
      local receivers = publish(waiter, {recheck = wait})
      if receivers ~= 0 then -- or an error: then nobody can know
        if told then return nil end
        told, wait = true, math.max(wait, CHECK)
      elseif not told then
        local over = now + (record(waiter).join == 0 and NEWCOMER or SUSPECT)
        local before = tonumber(redis.call('ZSCORE', D, place) or nil)
        if before and before <= over then over = before else redis.call('ZADD', D, over, place) end
        wait = math.max(wait, over + 1 - now)
      end
    end
    i = i + 1
    place = redis.call('ZRANGE', Q, i, i)[1]
  end
end

-- Adds the tombstone of an id, and removes old ones.
local function addTombstone(id)
  redis.call('ZADD', G, now, id)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', G, '-inf', now - TOMBSTONE)) do
    redis.call('ZREM', G, old)
    redis.call('HDEL', E, old .. '!')
  end
  redis.call('PEXPIRE', G, TOMBSTONE)
end

local function removeEntry(r, id)
  redis.call('ZREM', H, id)
  if r.order then
    redis.call('ZREM', Q, place(r, id))
    redis.call('ZREM', D, place(r, id))
  end
  redis.call('HDEL', E, id, id .. '@', id .. '!')
  addTombstone(id)
end

-- Evicts an entry. A waiter is out of the queue at once, and so is a slot that only a
-- hold keeps; a holder has to end its command first, and is only marked.
local function evict(id, r, by)
  if redis.call('ZSCORE', H, id) then
    if not alive(r, id) then return removeEntry(r, id) end
    redis.call('HSETNX', E, id .. '!', by)
    if r.hold > 0 then redis.call('ZADD', H, redis.call('HGET', E, id .. '@'), id) end -- the hold is void
  else
    removeEntry(r, id)
    redis.call('HSET', E, id .. '!', by)
    prolong(E, TOMBSTONE, 0)
  end
  publish(id, {evicted = true})
end

-- An entry of an answer.
local function entryOf(state, id, moment, r)
  local e = {state = state, id = id, left = msUntil(moment), record = r, by = redis.call('HGET', E, id .. '!') or nil}
  if state == 'holding' then
    e.ended = not alive(r, id)
    if not e.by then e.hold = msUntil(holdEnd(r)) end
  end
  return e
end

-- An empty list would be an object in JSON.
local function listed(entries) return #entries > 0 and entries or nil end

-- A refusal says who is in the way, or for how many ms nothing but the quarantine is.
local function refuse(answer, quarantine)
  local entries, live = {}, redis.call('ZRANGE', H, 0, -1, 'WITHSCORES')
  for i = 1, #live, 2 do
    local r, text = record(live[i])
    if text then entries[#entries + 1] = entryOf('holding', live[i], live[i + 1], r) end
  end
  answer.quarantine, answer.waiters, answer.entries = quarantine, redis.call('ZCARD', Q), listed(entries)
  return answer
end

-- The waiters before a place, and those of them that replace anything.
local function ahead(at)
  local count, rivals = 0, {}
  for _, other in ipairs(redis.call('ZRANGEBYLEX', Q, '-', '(' .. at)) do
    local r = record(other:sub(33))
    count = count + 1
    if r.replace ~= '' then rivals[#rivals + 1] = {id = other:sub(33), r = r, state = 'waiting'} end
  end
  return count, rivals
end

-- Evicts whom a newcomer replaces: waiters ahead of it that replace anything,
-- and if it replaces the running those holders that said the same, the oldest
-- first and no more than it takes for it to fit beside the others. Returns
-- them, as entries of an answer.
local function replace(mine, rivals)
  local gone, stay = {}, {}
  for _, v in ipairs(rivals) do gone[#gone + 1] = v end
  for _, h in ipairs(redis.call('ZRANGE', H, 0, -1)) do
    local r = record(h)
    if not redis.call('HGET', E, h .. '!') then
      stay[#stay + 1] = {id = h, r = r, state = 'holding', ticket = r.ticket or ''}
    end
  end
  local function room()
    local sum, limit = 0, 0
    for _, v in ipairs(stay) do
      sum, limit = sum + v.r.weight, least(limit, v.r.max)
    end
    return fits(mine, sum, limit)
  end
  table.sort(stay, function(a, b) return a.ticket < b.ticket end)
  local i = 1
  while mine.replace == 'running' and stay[i] and not room() do
    if stay[i].r.replace == 'running' then gone[#gone + 1] = table.remove(stay, i) else i = i + 1 end
  end
  local answer = {}
  for _, v in ipairs(gone) do
    answer[#answer + 1] = entryOf(v.state, v.id, now, v.r)
    evict(v.id, v.r, by)
  end
  return answer
end
